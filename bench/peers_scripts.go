package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/scripts"
)

// byRueidis claims and completes with coatcheck's own two scripts by rueidis, which puts the calls
// of all goroutines into pipelines by itself. What differs from coatcheck is all in Go: who shares
// which round trip, and what else the middleware does.
type byRueidis struct{ client rueidis.Client }

func guardWithScripts(_ context.Context, redisURL string) (guard, error) {
	options, err := rueidis.ParseURL(redisURL)
	if err != nil {
		return guard{}, err
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		return guard{}, err
	}
	return guard{middleware: guardBy(byRueidis{client}), close: func() error { client.Close(); return nil }}, nil
}

var (
	claimScript    = rueidis.NewLuaScript(scripts.TokenClaim.Text().Source)
	completeScript = rueidis.NewLuaScript(scripts.TokenComplete.Text().Source)
)

// claim takes a key for an owner; if there is an answer already, it returns that one.
func (r byRueidis) claim(ctx context.Context, key, owner, fingerprint string) (answer []byte, granted bool, err error) {
	lease := strconv.FormatInt(peerLease.Milliseconds(), 10)
	terms := strings.Join([]string{strconv.FormatInt(peerRetention.Milliseconds(), 10), lease, fingerprint, "hold", "", "", "", ""}, "\t")
	said, err := claimScript.Exec(ctx, r.client, keysOf(key), []string{owner, terms, lease, "", "any", "",
		strconv.FormatInt(idempotency.MinKeepOpen.Milliseconds(), 10)}).AsStrSlice()
	switch {
	case err != nil:
		return nil, false, err
	case said[0] == "granted":
		return nil, true, nil
	case said[0] == "replay":
		return []byte(said[1]), false, nil
	case said[0] == "busy":
		return nil, false, errBusy
	}
	return nil, false, fmt.Errorf("a script answered %q", said)
}

// complete stores the answer.
func (r byRueidis) complete(ctx context.Context, key, owner string, answer []byte) error {
	said, err := completeScript.Exec(ctx, r.client, keysOf(key), []string{owner, string(answer), ""}).AsStrSlice()
	if err == nil && said[0] != "ok" {
		err = fmt.Errorf("a script answered %q", said)
	}
	return err
}

// keysOf are an operation's record and the list of the operations under way.
func keysOf(key string) []string { return []string{"{" + key + "}", "{under-way}"} }

// secretOf is 128 random bits, as coatcheck's owners are.
func secretOf() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(bits[:])
}
