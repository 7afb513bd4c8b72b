module perennial.dev/judge

go 1.19
