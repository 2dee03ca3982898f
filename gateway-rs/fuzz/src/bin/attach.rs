//! Messages of an attached client.
#![no_main]

fuzz::target!(
    [
        b"\x01\0\0\0\0\0\0\0\0\x07hi".as_slice(),
        b"\0{\"type\": \"stdin_eof\", \"offset\": 7}",
        b"\0{\"type\": \"signal\", \"signal\": 15, \"tree\": true}",
        b"\0{\"type\": \"resize\", \"columns\": 80, \"rows\": 24}",
    ],
    gateway::processes::check_decoding
);
