"""A real HTTP service on loopback that does what a test scripts."""

from aiohttp import web

from tests.support.loop_thread import LoopThread, end_service


class ScriptedService:
    """An aiohttp server in a thread of its own: `answer(request)` says what it does; it logs every
    request it hears.
    """

    def __init__(self):
        self.answer = self.weather
        self.log = []  # (path as it came over the wire, query string), in the order of arrival
        self.highest_in_flight = 0
        self._in_flight = 0
        self._loop = LoopThread()

    async def weather(self, request):
        return web.json_response({"temp_c": 3.9, "wind": {"speed": 5.1}})

    async def _serve(self, request):
        self.log.append(request.raw_path)
        self._in_flight += 1
        self.highest_in_flight = max(self.highest_in_flight, self._in_flight)
        try:
            return await self.answer(request)
        finally:
            self._in_flight -= 1

    async def _start(self):
        application = web.Application(client_max_size=64 << 20)
        application.router.add_get(r"/{path:[\s\S]*}", self._serve, allow_head=False)
        application.router.add_post(r"/{path:[\s\S]*}", self._serve)
        application.router.add_put(r"/{path:[\s\S]*}", self._serve)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1000).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @property
    def open_connections(self):
        return len(self._runner.server.connections)

    def start(self):
        self._loop.start().run(self._start())

    def stop(self):
        self._loop.run(end_service(self._runner))
        self._loop.stop()
