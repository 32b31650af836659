"""A server of files on this machine, that a test can have misbehave."""

import contextlib
import http.server
import re
import threading
import urllib.parse


class FileServer(http.server.ThreadingHTTPServer):
    """Serves `content`: {last part of an address: bytes}, or the same bytes at every address.

    Attributes:
        url: "http://127.0.0.1:port".
        requests: the header `Range` of every request, None where it has none.
        etag, checksum, ranges, cut_after: what a test changes: the files' `ETag`, their MD5 in
            base64 or None, whether ranges are understood, the bytes after which it hangs up.
    """

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.content, self.requests = content, []
        self.etag, self.checksum, self.ranges, self.cut_after = '"1"', None, True, None


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.requests.append(asked)
        content = server.content
        if isinstance(content, dict):
            name = urllib.parse.unquote(self.path.partition("?")[0]).rpartition("/")[2]
            content = content.get(name)
        if content is None:
            self.send_error(404)
            return
        ranged, body = server.ranges and asked, content
        self.send_response(206 if ranged else 200)
        if ranged:
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked).groups()
            begin = int(first) if first else len(content) - int(last)
            body = content[begin:][: int(last) + 1 - begin if first and last else None]
            end = begin + len(body) - 1
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.etag)
        if server.checksum is not None:
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("x-goog-hash", f"md5={server.checksum}")
        self.end_headers()
        # The client may have seen all that it wanted to know.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[: server.cut_after])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(content):
    with FileServer(content) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
