module rollbox.dev/node

go 1.26
