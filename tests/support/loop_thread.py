"""An event loop in a thread, for a test's servers: at its end no task and no connection of theirs
is left.
"""

import asyncio
import threading

# of the loop: one to accept a connection, one to begin it, one to close it, and some to spare
TURNS = 5


class LoopThread:
    """Runs a server's coroutines in a thread until `stop`."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def stop(self, *servers):
        """End these servers of asyncio, what still runs, and the thread."""
        self.run(_close(servers))
        self.run(_cancel_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


async def turns_of_the_loop():
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def _cancel_others():
    await turns_of_the_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await turns_of_the_loop()


async def _close(servers):
    await stop_accepting(servers)
    for server in servers:
        server.close()


async def stop_accepting(servers):
    """Accept no more connections, and begin those that are accepted: asyncio leaves a connection
    open that begins after its server was closed.
    """
    loop = asyncio.get_running_loop()
    for listening in (socket for server in servers for socket in server.sockets):
        loop.remove_reader(listening.fileno())
    await turns_of_the_loop()


async def end_service(runner):
    """End an aiohttp server, with the connections that it accepted while it ended."""
    server = runner.server
    await stop_accepting([site._server for site in runner.sites])
    await runner.cleanup()
    await turns_of_the_loop()
    await server.shutdown(0.1)
