"""An S3 server on a host: moto, which answers each request after a latency.

python store.py ADDRESS PORT LATENCY
"""

import os
import sys
import time

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

from demo.s3 import changing_one_at_a_time


def main(address, port, latency):
    os.environ["MOTO_PORT"] = str(port)
    moto = changing_one_at_a_time(DomainDispatcherApplication(create_backend_app))

    def answer(environ, start_response):
        time.sleep(latency)
        return moto(environ, start_response)

    run_simple(address, port, answer, threaded=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
