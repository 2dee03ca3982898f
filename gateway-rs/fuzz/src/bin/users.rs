//! User files of an image, after a user that is to be found in them.
#![no_main]

fuzz::target!(
    [
        b"bob\0root:x:0:0:root:/root:/bin/sh\nbob:x:1000:100::/home/bob:/bin/sh\n\0users:x:100:\nvideo:x:44:bob\n".as_slice(),
        b"1000:44\0\0video:x:44:",
    ],
    sidecar::spawner::check_databases
);
