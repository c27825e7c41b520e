"""A stand-in for the Hugging Face hub on the loopback interface, for test_download.cpp.

Serves FOLDER/OWNER/NAME/FILE at /OWNER/NAME/resolve/REVISION/FILE (and below /datasets) with the hub's headers: small
files with git's hash as ETag, *.safetensors by a redirect to /cdn with X-Linked-Size and X-Linked-ETag. Prints its
port, then one line per request. Faults are switched on by name on the command line:
  cut     an answer stops after 10000 bytes
  norange ranges are ignored
  flip    the first GET of each large file has a wrong byte
  lie     every GET of a large file has one
"""
import hashlib
import http.server
import os
import sys

root, faults = sys.argv[1], set(sys.argv[2:])
commit = "0123456789abcdef0123456789abcdef01234567"
flipped = set()


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        token = self.headers.get("Authorization", "-")
        print(self.command, self.path, self.headers.get("Range", "-"), token, flush=True)
        parts = self.path.strip("/").split("/")
        if parts[0] == "old":  # a repository that was renamed
            return self.answer(307, [("Location", "/new/" + "/".join(parts[1:]))])
        if parts[0] == "gated" and token != "Bearer secret":
            return self.answer(401)
        if parts[0] == "broken":
            return self.answer(500)
        cdn = parts[0] == "cdn"
        while parts and parts[0] in ("cdn", "datasets"):
            parts = parts[1:]
        if len(parts) < 5 or parts[2] != "resolve" or parts[3] not in ("main", commit):
            return self.answer(404)
        path = os.path.join(root, *parts[:2], *parts[4:])
        if not os.path.isfile(path):
            return self.answer(404)
        with open(path, "rb") as file:
            data = file.read()
        headers = [("X-Repo-Commit", commit)]
        large = path.endswith(".safetensors")
        if large and not cdn:
            headers += [("X-Linked-Size", str(len(data))), ("X-Linked-ETag", f'"{hashlib.sha256(data).hexdigest()}"')]
            return self.answer(302, headers + [("Location", "/cdn" + self.path)])
        if not large:
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            headers += [("ETag", f'W/"{git}"')]
        if large and self.command == "GET" and ("lie" in faults or ("flip" in faults and path not in flipped)):
            flipped.add(path)
            data = data[:-1] + bytes([data[-1] ^ 1])
        wanted = self.headers.get("Range", "")
        status, length = 200, len(data)
        if wanted.startswith("bytes=") and "norange" not in faults:
            start = int(wanted[6:].split("-")[0])
            if start >= len(data):
                return self.answer(416)
            headers += [("Content-Range", f"bytes {start}-{length - 1}/{length}")]
            status, data = 206, data[start:]
        headers += [("Content-Length", str(len(data)))]
        if "cut" in faults and len(data) > 10000:
            data = data[:10000]
            self.close_connection = True
        self.answer(status, headers, data)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
print(server.server_address[1], flush=True)
server.serve_forever()
