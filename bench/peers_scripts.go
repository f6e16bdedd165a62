package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/coatcheck/coatcheck/scripts"
)

// runner runs a script and returns its answer as texts.
type runner interface {
	run(ctx context.Context, script *scripts.Script, key string, args ...string) ([]string, error)
	close() error
}

// twoTrips claims and completes with coatcheck's own two scripts, each a call of its own. What
// differs from coatcheck is all in Go: who shares which round trip, and what else the middleware
// does.
type twoTrips struct{ runner runner }

func guardWithScripts[R runner](open func(ctx context.Context, redisURL string) (R, error)) func(context.Context, string) (guard, error) {
	return func(ctx context.Context, redisURL string) (guard, error) {
		runner, err := open(ctx, redisURL)
		if err != nil {
			return guard{}, err
		}
		return guard{middleware: guardBy(twoTrips{runner}), close: runner.close}, nil
	}
}

func (t twoTrips) claim(ctx context.Context, key, owner, fingerprint string) ([]byte, bool, error) {
	answer, err := t.runner.run(ctx, scripts.TokenClaim, key, owner, fingerprint, strconv.FormatInt(peerLease.Milliseconds(), 10), "hold",
		strconv.FormatInt(peerRetention.Milliseconds(), 10), "", "any", "", "", "", "")
	if err != nil {
		return nil, false, err
	}
	switch answer[0] {
	case "granted":
		return nil, true, nil
	case "replay":
		return []byte(answer[1]), false, nil
	case "busy":
		return nil, false, errBusy
	}
	return nil, false, unexpected(answer)
}

func (t twoTrips) complete(ctx context.Context, key, owner string, answer []byte) error {
	said, err := t.runner.run(ctx, scripts.TokenComplete, key, owner, string(answer),
		strconv.FormatInt(peerRetention.Milliseconds(), 10), "")
	if err == nil && said[0] != "ok" {
		err = unexpected(said)
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

// goRedis runs scripts by go-redis, over a connection of the pool each or by its automatic
// pipeline.
type goRedis struct {
	redis.Scripter

	client *redis.Client
}

func autoRunner(ctx context.Context, redisURL string) (goRedis, error) {
	client, err := peerClient(redisURL)
	if err != nil {
		return goRedis{}, err
	}
	for _, script := range []*scripts.Script{scripts.TokenClaim, scripts.TokenComplete} {
		if err := client.ScriptLoad(ctx, script.Source).Err(); err != nil {
			return goRedis{}, errors.Join(err, client.Close())
		}
	}
	auto, err := client.AutoPipeline()
	if err != nil {
		return goRedis{}, errors.Join(err, client.Close())
	}
	return goRedis{Scripter: auto, client: client}, nil
}

func (g goRedis) run(ctx context.Context, script *scripts.Script, key string, args ...string) ([]string, error) {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = arg
	}
	answer, err := g.EvalSha(ctx, script.SHA, keysOf(key), words...).StringSlice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, err = g.Eval(ctx, script.Source, keysOf(key), words...).StringSlice()
	}
	return answer, err
}

func (g goRedis) close() error { return g.client.Close() }

// byRueidis runs scripts by rueidis, which puts the calls of all goroutines into pipelines by
// itself.
type byRueidis struct {
	client rueidis.Client
	loaded map[string]*rueidis.Lua
}

func rueidisRunner(_ context.Context, redisURL string) (byRueidis, error) {
	options, err := rueidis.ParseURL(redisURL)
	if err != nil {
		return byRueidis{}, err
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		return byRueidis{}, err
	}
	loaded := map[string]*rueidis.Lua{}
	for _, script := range []*scripts.Script{scripts.TokenClaim, scripts.TokenComplete} {
		loaded[script.Name] = rueidis.NewLuaScript(script.Source)
	}
	return byRueidis{client: client, loaded: loaded}, nil
}

func (r byRueidis) run(ctx context.Context, script *scripts.Script, key string, args ...string) ([]string, error) {
	return r.loaded[script.Name].Exec(ctx, r.client, keysOf(key), args).AsStrSlice()
}

func (r byRueidis) close() error { //nolint:unparam // the others can fail
	r.client.Close()
	return nil
}
