"""Server in the virtual machine: runs the shell script that a connection sends, and answers.

The answer is the script's output as it comes, then a zero byte and the exit status.  Only the
standard library is used, so that it starts quickly on an emulated CPU.
"""

import socketserver
import subprocess
import sys


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", self.rfile.read().decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        while process.stdout is not None and (data := process.stdout.read(1 << 16)):
            self.wfile.write(data)
        self.wfile.write(f"\0{process.wait()}".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    _Server(("0.0.0.0", int(sys.argv[1])), _Handler).serve_forever()  # noqa: S104 -- the VM's own
