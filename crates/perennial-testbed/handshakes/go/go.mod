module perennial.dev/handshakes

go 1.19
