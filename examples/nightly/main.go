// Command nightly is a job that must run once a night: it sends the day's statement. It is started
// by the crontab of each of three nodes, under coatcheck once, which lets one of them run it:
//
//	0 3 * * *  coatcheck once --on-failure keep nightly:{yyyyMMdd} --redis redis://redis:6379 -- nightly
//
// It may fail after the bank has got the statement, so that a failure must not run it again by
// itself: --on-failure keep.
//
// The job itself knows nothing of that but for ONCE_KEY, which it gives to the bank as a reference,
// so that whoever has to settle a night in doubt can ask the bank (--look KEY).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

// run is the whole program. The result is the exit code: with --look, 0 if the statement was sent
// and 1 if not.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nightly", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("bank", "redis://localhost:6379", "a Redis that stands for the bank: the statements are its list statements")
	look := flags.String("look", "", "send nothing: say whether the statement of this `key` was sent")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	options, err := redis.ParseURL(*url)
	if err != nil {
		fmt.Fprintf(stderr, "nightly: %v\n", err)
		return 2
	}
	options.MaxRetries = -1 // what had no answer must not be sent again
	bank := redis.NewClient(options)
	defer func() { _ = bank.Close() }() // all has been answered
	if *look != "" {
		times, err := sent(ctx, bank, *look)
		if err != nil {
			fmt.Fprintf(stderr, "nightly: %v\n", err)
			return 2
		}
		fmt.Fprintf(stdout, "the statement of %s was sent %d times\n", *look, times)
		return map[bool]int{true: 0, false: 1}[times > 0]
	}
	if getenv("ONCE_KEY") == "" {
		fmt.Fprintln(stderr, "nightly: start it under coatcheck once, which names the night in ONCE_KEY")
		return 2
	}
	if err := send(ctx, bank, getenv("ONCE_KEY")); err != nil {
		fmt.Fprintf(stderr, "nightly: the statement may have been sent or not: %v\n", err)
		return 1
	}
	return 0
}

const statements = "statements"

// send takes as long before the statement is out of the house as after.
func send(ctx context.Context, bank *redis.Client, key string) error {
	time.Sleep(3 * time.Millisecond)
	defer time.Sleep(2 * time.Millisecond)
	return bank.RPush(ctx, statements, key).Err()
}

// sent is how often the bank has got the statement of a night.
func sent(ctx context.Context, bank *redis.Client, key string) (times int, err error) {
	list, err := bank.LRange(ctx, statements, 0, -1).Result()
	for _, one := range list {
		if one == key {
			times++
		}
	}
	return times, err
}
