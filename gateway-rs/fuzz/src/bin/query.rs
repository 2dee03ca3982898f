//! Queries of the gateway's endpoints.
#![no_main]

fuzz::target!(
    [
        b"path=/a%2Fb+c%ff&mode=0644&user=1000:1000&flag=true".as_slice(),
        b"path=a&number=18446744073709551615",
        b"digest=abababababababababababababababababababababababababababababababab",
    ],
    gateway::check_query
);
