module github.com/coatcheck/coatcheck/chaos/peers

go 1.26.0

replace github.com/coatcheck/coatcheck => ../../

require (
	github.com/bsm/redislock v0.10.0
	github.com/coatcheck/coatcheck v0.0.0-00010101000000-000000000000
	github.com/go-redsync/redsync/v4 v4.18.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
