//! Requests to the proxy in HTTP.
#![no_main]

fuzz::target!(
    [
        b"GET http://a.test/b?c HTTP/1.1\r\nHost: a.test\r\nConnection: close, x\r\nX: 1\r\n\r\n".as_slice(),
        b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
        b"GET http://packages.rollbox.internal/pypi.org/simple/%41/ HTTP/1.1\r\n\r\nGET http://[2001:db8::1]:81 HTTP/1.0\r\n\r\n",
        b"POST http://a.test:8080/ HTTP/1.1\r\nHost: a.test:8080\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ],
    egress::check_requests
);
