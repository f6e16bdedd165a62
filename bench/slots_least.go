package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // by which Redis knows a script
	"encoding/hex"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// bare follows the name of a ring at which Redis does what the scripts of worker ids have it do,
// without deciding anything.
const bare = ", bare commands"

// The commands of lib/worker_acquire_plain and lib/worker_renew_plain, as many and in that order,
// and no text but what they need. Any grant is written, whatever was read before it. A nonce has 22
// characters. What names a slot no more is removed, so that no hash grows.
const (
	leastAcquireText = `local key, index, names, nonce, identity = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local till = (redis.call('TIME')[1] + 3600) .. '000'
local id = redis.call('ZRANGE', index, '0', '0')[1]
local stored = redis.call('HMGET', key, 'pool', 's:' .. id)
redis.call('INFO', 'replication')
redis.call('HLEN', key)
redis.call('ZCARD', index)
local first, second, gone, other = 'n:' .. nonce, 'i:' .. identity, 'n:' .. string.sub(stored[2], 1, 22), 'i:' .. string.sub(stored[2], 23 + #ARGV[3])
redis.call('HMGET', names, first, second, gone, other)
redis.call('ZADD', index, till, id)
redis.call('HSET', key, 's:' .. id, nonce .. ARGV[3] .. identity, 'pool', stored[1])
redis.call('HDEL', names, gone, other)
redis.call('HSET', names, first, id, second, id)
return {'granted', id, till, id, till, id, stored[1], '0'}`

	leastRenewText = `local key, index, id = KEYS[1], KEYS[2], ARGV[1]
local till = (redis.call('TIME')[1] + 3600) .. '000'
redis.call('PERSIST', key)
local stored = redis.call('HMGET', key, 'pool', 's:' .. id)
redis.call('INFO', 'replication')
redis.call('HLEN', key)
redis.call('ZADD', index, till, id)
redis.call('HSET', key, 's:' .. id, stored[2])
return {'ok', till, id, till}`

	// Not timed: the next round takes the same slots, as that of the whole scripts does.
	leastReleaseText = `return {'ok', redis.call('ZADD', KEYS[2], redis.call('TIME')[1] - 3600 .. '000', ARGV[1])}`
)

// leastWindow stands between the nonce and the identity of a record, as long as what else it has.
const leastWindow = " 1764000000000 1764003600000 1764000000000000 h "

// leastCalls run those scripts as package workerlease runs its own, with as many arguments.
func leastCalls(store *redisstore.Store, name string) slotCalls {
	engine, keys := pipeline.Of(store), keysOfRing(store, name)
	acquire, renew := scriptOf("least_acquire", leastAcquireText), scriptOf("least_renew", leastRenewText)
	release := scriptOf("least_release", leastReleaseText)
	ids := make([]string, turnsOfSlots)
	run := func(ctx context.Context, script *scripts.Script, args ...any) ([]string, error) {
		said, err := engine.Run(ctx, script, keys, args...)
		if err == nil && len(said) < 2 {
			err = unexpected(said)
		}
		return said, err
	}
	return slotCalls{
		acquire: func(ctx context.Context, i int) error {
			said, err := run(ctx, acquire, secretOf(), identityOf(i), leastWindow, "", "", "", "", "", "", "", "", "", "", "", "")
			if err == nil {
				ids[i] = said[1]
			}
			return err
		},
		renew: func(ctx context.Context, i int) error {
			_, err := run(ctx, renew, ids[i], "", "", "", "", "", "", "", "", "", "", "", "", "")
			return err
		},
		release: func(ctx context.Context, i int) error {
			_, err := run(ctx, release, ids[i])
			return err
		},
	}
}

func scriptOf(name, text string) *scripts.Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // the same
	return &scripts.Script{Name: name, Source: text, SHA: hex.EncodeToString(sum[:])}
}
