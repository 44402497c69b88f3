#!/usr/bin/env python3
"""Writes sign.jsonl beside this script: requests that botocore and azure-storage-blob signed, dates and tokens, for test_sign.

    python3 -m venv v && v/bin/pip install -r tests/data/requirements-sign.txt && v/bin/python tests/data/make_sign_fixtures.py

One JSON object a line, its "kind" first: v4, azure, date, rs256. The same bytes in every run. All keys are made up by the script.
"""
import base64
import datetime
import email.utils
import hashlib
import json
import math
import os
import random
import types
import urllib.parse

import botocore.auth
import botocore.awsrequest
import botocore.credentials
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PARTS = ["t2m", "c", "0", "0.0.0", "zarr.json", ".zattrs", "a b", "a+b", "50%", "%2F", "x=y&z", "überblick", "雲", "\U0001f9ca",
    "~tilde", "q?", "#1", "'quoted'", '"double"', "(1)", "a:b@c", "[x]", "$!*,;", "..", "", "\\", "^`{|}", "\x7f"]
REGIONS = ["us-east-1", "eu-central-1", "ap-southeast-2", "us-gov-west-1", "auto"]
FIRST = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def word(draw, n, digits=DIGITS):
    return "".join(draw.choice(digits) for _ in range(n))


def some_key(draw):
    return "/".join(draw.choice(PARTS) for _ in range(draw.randrange(1, 6)))


def some_query(draw):
    pairs = [["list-type", "2"], ["prefix", some_key(draw)], ["delimiter", "/"], ["max-keys", "1000"],
        ["continuation-token", word(draw, 44) + "=="], ["encoding-type", "url"], ["start-after", some_key(draw)],
        ["versionId", word(draw, 32)], ["uploads", ""],
        ["a", ""], ["a%", "1"], ["a-", "2"], ["A", "3"], ["aa", "4"], ["ü", "ö"], ["prefix", "another"]]
    return draw.sample(pairs, draw.randrange(0, 7)) if draw.random() < 0.6 else []


def v4(draw, n):
    now = draw.randrange(1_300_000_000, 2_200_000_000)
    service = "sts" if n % 8 == 7 else "s3"
    key, query = ("", []) if service == "sts" else (some_key(draw), some_query(draw))
    host = draw.choice(["bucket.s3.amazonaws.com", "s3.eu-west-3.amazonaws.com", "127.0.0.1:9000", "storage.googleapis.com"])
    token = word(draw, draw.choice([16, 356, 1500])) + "==" if n % 3 == 0 else None
    method = draw.choice(["GET", "HEAD"]) if service == "s3" and n % 5 else "POST"
    body = word(draw, 90).encode() if method == "POST" else b""
    headers = draw.sample(["Range: bytes=0-1048575", 'If-Match: "d41d8cd98f00b204e9800998ecf8427e"',
        "x-amz-request-payer: requester", "X-Amz-Expected-Bucket-Owner:   123456789012  ", "x-amz-meta-note: a   b  c",
        "Content-Type: application/x-www-form-urlencoded", "User-Agent: insitubatch", "X-Amz-Checksum-Mode: ENABLED"],
        draw.randrange(0, 5))
    access, secret, region = word(draw, 20, DIGITS[:26]), word(draw, 40), draw.choice(REGIONS)
    path = "/" + urllib.parse.quote(key, safe="/~")
    given = dict(h.split(":", 1) for h in headers)
    request = botocore.awsrequest.AWSRequest(method, f"https://{host}{path}", given, body or None,
        params=[tuple(p) for p in query])
    unsigned = service == "s3" and n % 4 == 1
    request.context["client_config"] = types.SimpleNamespace(s3={"payload_signing_enabled": not unsigned})
    at = FIRST + datetime.timedelta(seconds=now)
    botocore.auth.get_current_datetime = lambda *a, **k: at
    kind = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    signer = kind(botocore.credentials.Credentials(access, secret, token), service, region)
    signer.add_auth(request)
    return {"kind": "v4", "method": method, "host": host, "key": key, "path": path, "pairs": query,
        "query": signer.canonical_query_string(request), "headers": headers, "access": access, "secret": secret,
        "token": token or "", "region": region, "service": service,
        "payload": "UNSIGNED-PAYLOAD" if unsigned else hashlib.sha256(body).hexdigest(),
        "now": now, "date": request.headers["X-Amz-Date"], "content": request.headers.get("X-Amz-Content-SHA256", ""),
        "authorization": request.headers["Authorization"]}


def azure(draw, n):
    account, key = word(draw, 12, "abcdefghijklmnopqrstuvwxyz0123456789"), bytes(draw.randrange(256) for _ in range(64))
    own_host = n % 3 != 0  # else the path names the account, as of the emulator
    path = ("" if own_host else "/" + account) + "/container/" + urllib.parse.quote(some_key(draw), safe="/~")
    pairs = draw.sample([["comp", "list"], ["restype", "container"], ["prefix", some_key(draw)], ["delimiter", "/"],
        ["marker", word(draw, 30) + "="], ["maxresults", "5000"], ["snapshot", "2024-05-01T12:00:00.1234567Z"], ["timeout", "30"]],
        draw.randrange(0, 6))
    query = "&".join(f"{k}={urllib.parse.quote(v, safe='')}" for k, v in pairs)
    method, length = draw.choice([("GET", ""), ("HEAD", ""), ("GET", "0"), ("PUT", "0"), ("PUT", str(draw.randrange(1, 1 << 40)))])
    now = draw.randrange(1_300_000_000, 2_200_000_000)
    headers = [f"x-ms-date: {email.utils.formatdate(now, usegmt=True)}", "x-ms-version: 2021-08-06"] + draw.sample(
        ["x-ms-range: bytes=0-1048575", 'If-Match: "0x8D4BCC2E4835CD0"', "x-ms-client-request-id: 3a6d1c0e",
        "User-Agent: insitubatch", "If-Modified-Since: Tue, 15 Nov 1994 08:12:31 GMT", "x-ms-blob-type: BlockBlob",
        "Content-Type: text/plain", 'If-None-Match: "x"', "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==", "Content-Encoding: gzip",
        "Content-Language: en", "x-ms-meta-note: a  b",
        "If-Unmodified-Since: Tue, 15 Nov 1994 08:12:31 GMT"], draw.randrange(0, 7))
    draw.shuffle(headers)
    host = f"{account}.blob.core.windows.net" if own_host else "127.0.0.1:10000"
    url = f"https://{host}{path}" + ("?" + query if query else "")
    request = HttpRequest(method, url, dict(h.split(": ", 1) for h in headers))
    if length:
        request.headers["Content-Length"] = length
    policy = SharedKeyCredentialPolicy(account, base64.b64encode(key).decode())
    policy.on_request(PipelineRequest(request, PipelineContext(None)))
    return {"kind": "azure", "account": account, "secret": base64.b64encode(key).decode(), "method": method, "path": path,
        "query": query, "headers": headers, "length": length, "authorization": request.headers["Authorization"]}


def date(draw, n):
    bounds = [(-62135596800, 253402300799), (0, 4102444800), (1_600_000_000, 1_900_000_000)][n % 3]
    edges = [-62135596800, 253402300799, 0, -1, 951782400, 951868799, 1078012799, 4107542399]
    seconds = edges[n] if n < len(edges) else draw.randrange(*bounds)
    at = FIRST + datetime.timedelta(seconds=seconds)
    zone = datetime.timezone(datetime.timedelta(minutes=draw.randrange(-23 * 60, 23 * 60)))
    near = 100_000 > abs(seconds - bounds[0]) or 100_000 > abs(seconds - bounds[1])
    return {"kind": "date", "seconds": seconds, "http": email.utils.format_datetime(at, usegmt=True),
        "basic": f"{at.year:04}{at:%m%dT%H%M%SZ}", "iso": at.isoformat().replace("+00:00", "Z"),
        "offset": at.isoformat() if near else at.astimezone(zone).isoformat()}


def prime(draw, bits):
    small = math.prod(n for n in range(3, 2000, 2))
    while True:
        p = draw.getrandbits(bits) | 3 << bits - 2 | 1
        if math.gcd(p, small) == 1 and p % 65537 != 1 and all(pow(draw.randrange(2, p - 1), p - 1, p) == 1 for _ in range(20)):
            return p


def rs256(draw, n):
    bits = [2048, 2048, 3072][n]
    p, q = prime(draw, bits // 2), prime(draw, bits // 2)
    d = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    key = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()
    form = [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL][n % 2]
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    claims = [{"alg": "RS256", "typ": "JWT", "kid": word(draw, 40)},
        {"iss": "x@y.iam.gserviceaccount.com", "iat": n, "scope": "ü?>~"}]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(c).encode()).decode().rstrip("=") for c in claims)
    signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    token = text + "." + base64.urlsafe_b64encode(signature).decode().rstrip("=")
    return {"kind": "rs256", "pem": pem, "text": text, "token": token}


def main():
    with open(os.path.join(HERE, "sign.jsonl"), "w", encoding="utf-8") as f:
        for seed, (make, count) in enumerate([(v4, 60), (azure, 30), (date, 40), (rs256, 3)]):
            draw = random.Random(seed)
            for n in range(count):
                f.write(json.dumps(make(draw, n)) + "\n")


main()
