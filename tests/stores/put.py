#!/usr/bin/env python3
"""Uploads folders to an object store, signing by itself: Python's standard library only.

    put.py s3 ENDPOINT BUCKET PREFIX FOLDER...      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION (us-east-1)
    put.py gs ENDPOINT BUCKET PREFIX FOLDER...
    put.py az ENDPOINT CONTAINER PREFIX FOLDER...   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY
    put.py sas CONTAINER SECONDS [PERMISSIONS]      prints a token of the container that ends so many seconds from now; the same two
    put.py token AUDIENCE SECONDS                   prints a JSON web token, unsigned, for an emulator that reads only what it says
    put.py ports COUNT                              prints free TCP ports of 127.0.0.1

PUT_CA names the authorities that a server over TLS may have its certificate from.
The bucket or container is made where it is missing. A file FOLDER/a/b becomes the object PREFIX/NAME/a/b, where NAME is FOLDER's
last part. Prints how many objects there are, or what failed; everything is told to the endpoint given, and nowhere else.
"""
import base64
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import json
import os
import random
import socket
import ssl
import sys
import threading
import urllib.parse

LANES = 8  # requests at once, each on its own connection
AZURE_VERSION = "2021-08-06"


def escape(text, keep=""):
    return urllib.parse.quote(text, safe="-._~" + keep)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def sign_s3(method, host, path, query, body, headers):
    """Signature version 4, of the exact path that is sent."""
    stamp = now().strftime("%Y%m%dT%H%M%SZ")
    region = os.environ.get("AWS_REGION", "us-east-1")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(sorted(signed))
    request = "\n".join([method, path, query, *(f"{k}:{signed[k]}" for k in sorted(signed)), "", names, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = os.environ["AWS_ACCESS_KEY_ID"] + "/" + scope
    headers.update({"x-amz-content-sha256": digest, "x-amz-date": stamp,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"})


def azure_hmac(text):
    key = base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()


def sign_az(method, path, query, body, headers):
    """SharedKey. The path begins with the account, as an emulator wants it, and the signed resource names the account once more."""
    account = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
    headers.update({"x-ms-date": now().strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": AZURE_VERSION})
    own = "".join(f"{k}:{headers[k]}\n" for k in sorted(k for k in headers if k.startswith("x-ms-")))
    resource = f"/{account}{path}" + "".join(f"\n{k}:{v}" for k, v in sorted(urllib.parse.parse_qsl(query)))
    text = "\n".join([method, "", "", str(len(body)) if body else "", "", "", "", "", "", "", "", "", own + resource])
    headers["Authorization"] = f"SharedKey {account}:{azure_hmac(text)}"


def sas(container, seconds, permissions="rl"):
    account = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
    form = "%Y-%m-%dT%H:%M:%SZ"
    start = (now() - datetime.timedelta(days=2)).strftime(form)
    end = (now() + datetime.timedelta(seconds=int(seconds))).strftime(form)
    # permissions, start, end, resource, identifier, addresses, protocol, version, kind, snapshot, scope, five headers of answers
    fields = [permissions, start, end, f"/blob/{account}/{container}", "", "", "", AZURE_VERSION, "c", "", "", "", "", "", "", ""]
    token = {"sv": AZURE_VERSION, "st": start, "se": end, "sr": "c", "sp": permissions, "sig": azure_hmac("\n".join(fields))}
    return urllib.parse.urlencode(token)


def token(audience, seconds):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    at = int(now().timestamp())
    times = {"iat": at - 7200, "nbf": at - 7200, "exp": at + int(seconds)}
    claims = {"aud": audience, "iss": "https://sts.windows.net/tests/", **times}
    return ".".join([part({"alg": "RS256", "typ": "JWT"}), part(claims), part("no signature")])


class Store:
    def __init__(self, kind, endpoint):
        self.kind, self.url, self.local = kind, urllib.parse.urlsplit(endpoint), threading.local()

    def call(self, method, path, query="", body=b"", headers=(), good=(200, 201, 204)):
        headers = dict(headers)
        url = self.url
        path = url.path.rstrip("/") + path
        if self.kind == "s3":
            sign_s3(method, self.url.netloc, path, query, body, headers)
        elif self.kind == "az":
            sign_az(method, path, query, body, headers)
        if not hasattr(self.local, "connection"):
            if url.scheme == "https":
                tls = ssl.create_default_context(cafile=os.environ["PUT_CA"])
                self.local.connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=60, context=tls)
            else:
                self.local.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        headers["Content-Length"] = str(len(body))
        try:
            answer, text = self.ask(method, path, query, body, headers)
        except (ConnectionError, ssl.SSLError):  # it was idle for too long, on a busy machine, and closed
            self.local.connection.close()
            answer, text = self.ask(method, path, query, body, headers)
        if answer.status not in good:
            raise SystemExit(f"put.py: {method} {path}: {answer.status} {text[:500].decode('utf-8', 'replace')}")
        return text

    def ask(self, method, path, query, body, headers):
        self.local.connection.request(method, path + ("?" + query if query else ""), body, headers)
        answer = self.local.connection.getresponse()
        return answer, answer.read()

    def make(self, bucket):
        if self.kind == "s3":
            self.call("PUT", "/" + bucket, good=(200, 409))
        elif self.kind == "az":
            self.call("PUT", "/" + bucket, "restype=container", good=(201, 409))
        else:
            body = b'{"name": "%s"}' % bucket.encode()
            self.call("POST", "/storage/v1/b", "project=test", body, {"Content-Type": "application/json"}, good=(200, 409))

    def put(self, bucket, key, body):
        if self.kind == "gs":
            query = "uploadType=media&name=" + escape(key)
            self.call("POST", f"/upload/storage/v1/b/{bucket}/o", query, body)
        else:
            headers = {"x-ms-blob-type": "BlockBlob"} if self.kind == "az" else {}
            self.call("PUT", f"/{bucket}/{escape(key, '/')}", "", body, headers)


def upload(kind, endpoint, bucket, prefix, *folders):
    store = Store(kind, endpoint)

    def put(key, path):
        with open(path, "rb") as f:
            store.put(bucket, key, f.read())

    with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
        jobs = [pool.submit(store.make, bucket)]
        concurrent.futures.wait(jobs)
        for folder in folders:
            top = os.path.dirname(os.path.abspath(folder))
            for parent, _, names in os.walk(folder):
                for path in (os.path.join(os.path.abspath(parent), name) for name in names):
                    jobs.append(pool.submit(put, "/".join(filter(None, [prefix, os.path.relpath(path, top)])), path))
        for job in jobs:
            try:
                job.result()
            except OSError as e:
                raise SystemExit(f"put.py: {endpoint}: {e}") from None
    print(f"{len(jobs) - 1} objects")


def ports(count):
    """None of those that the system gives to connections and to who asks for any: nobody takes one before it is used."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        first, last = map(int, f.read().split())
    others = [port for port in range(10000, 65536) if not first <= port <= last]
    sockets = []
    for port in [*random.sample(others, len(others)), *[0] * int(count)]:
        s = socket.socket()
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            s.close()
            continue
        sockets.append(s)
        if len(sockets) == int(count):
            break
    print(*(s.getsockname()[1] for s in sockets))


if __name__ == "__main__":
    command, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if command in ("s3", "gs", "az") and len(arguments) >= 4:
        upload(command, *arguments)
    elif command == "sas" and len(arguments) >= 2:
        print(sas(*arguments))
    elif command == "token" and len(arguments) == 2:
        print(token(*arguments))
    elif command == "ports" and len(arguments) == 1:
        ports(*arguments)
    else:
        raise SystemExit(__doc__)
