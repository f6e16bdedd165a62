package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// bare is a script of the commands that the work of an act takes at least. It decides only what the
// next commands depend on. The n-th call gets n where a key has a %d.
type bare struct {
	text string
	keys []string
	args []any
}

// calls are n calls of a bare script.
func (b bare) calls(ctx context.Context, server *redisServer, n int) ([]scriptCall, error) {
	script := redis.NewScript(b.text)
	if err := script.Load(ctx, server).Err(); err != nil {
		return nil, err
	}
	calls := make([]scriptCall, n)
	for i := range calls {
		calls[i] = scriptCall{"evalsha", script.Hash(), len(b.keys)}
		for _, key := range b.keys {
			if strings.Contains(key, "%") {
				key = fmt.Sprintf(key, i)
			}
			calls[i] = append(calls[i], key)
		}
		calls[i] = append(append(calls[i], b.args...), i)
	}
	return calls, nil
}

// The values of the bare scripts: enough for all that coatcheck has to remember.
var (
	bareRecord   = strings.Repeat("r", 150)
	bareAnswered = bareRecord + strings.Repeat("a", answerSize)
	bareHolder   = strings.Repeat("h", 40)
	bareFence    = strings.Repeat("1", 16) + " " + strings.Repeat("t", 22) + " 1700000000000 -"
	bareSlot     = strings.Repeat("s", 110)
)

const (
	bareTTL     = 3_600_000 // ms
	bareChannel = "bare-inbox"
)

// The keys of the bare scripts are as long as coatcheck's.
const (
	bareToken    = "coatcheck:token:{%032d}"
	bareUnderWay = "coatcheck:tokens:{under-way}"
	bareLock     = "coatcheck:lock:{lock-%06d}"
	bareCounter  = "coatcheck:counter:{orders-%06d}"
	bareMarker   = "coatcheck:counters:{marker}"
	bareRing     = "coatcheck:worker:{bare}"
)

var (
	ofToken   = []string{bareToken, bareUnderWay}
	ofLock    = []string{bareLock, bareLock + ":fence", bareLock + ":queue", bareLock + ":waiters"}
	ofCounter = []string{bareCounter, bareCounter + ":record", bareMarker, bareCounter + ":request"}
	ofRing    = []string{bareRing, bareRing + ":ends", bareRing + ":names"}
)

var bareClaim = bare{`local time = redis.call('TIME')
if redis.call('GET', KEYS[1]) == ARGV[1] then return {'busy'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], time[1], KEYS[1])
return {'granted', time[1]}`, ofToken, []any{bareRecord, bareTTL}}

var bareExtend = bare{`local time = redis.call('TIME')
if not redis.call('GET', KEYS[1]) then return {'gone'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], time[1], KEYS[1])
return {'ok', time[1]}`, ofToken, []any{bareRecord, bareTTL}}

var bareComplete = bare{`if not redis.call('GET', KEYS[1]) then return {'gone'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZREM', KEYS[2], KEYS[1])
return {'ok'}`, ofToken, []any{bareAnswered, bareTTL}}

var bareReplay = bare{`local record = redis.call('GET', KEYS[1])
if not record then return {'gone'} end
return {'replay', string.sub(record, 151)}`, ofToken, nil}

var bareIssue = bare{`local time = redis.call('TIME')
if redis.call('GET', KEYS[1]) then return {'exists'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'ok', time[1]}`, ofToken[:1], []any{"issued 1700000000000", bareTTL}}

var bareSettle = bare{`local time = redis.call('TIME')
if not redis.call('GET', KEYS[1]) then return {'gone'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZREM', KEYS[2], KEYS[1])
return {'ok', time[1]}`, ofToken, []any{bareAnswered, bareTTL}}

var bareEnter = bare{`local time = redis.call('TIME')
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return {'held'} end
local last = redis.call('GET', KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then return {'waiting'} end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return {'granted', time[1]}`, ofLock[:3], []any{bareHolder, bareFence, bareTTL}}

var bareRenewLock = bare{`local time = redis.call('TIME')
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'lost'} end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'ok', time[1]}`, ofLock[:2], []any{bareHolder, bareFence, bareTTL}}

var bareLeave = bare{`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'gone'} end
if redis.call('EXISTS', KEYS[3]) == 1 then return {'left'} end
redis.call('DEL', KEYS[1])
return {'free'}`, ofLock[:3], []any{bareHolder}}

var bareWait = bare{`redis.call('ZADD', KEYS[3], 1, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[2])
return {'waiting'}`, ofLock, []any{"waiter", bareFence}}

var bareHandOver = bare{`local time = redis.call('TIME')
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'gone'} end
local last, next = redis.call('GET', KEYS[2]), redis.call('ZRANGE', KEYS[3], 0, 0)
local waiter = redis.call('HGET', KEYS[4], next[1])
if redis.call('PUBLISH', ARGV[4], waiter) == 0 then return {'gone'} end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[1], next[1], 'PX', ARGV[3])
redis.call('ZREM', KEYS[3], next[1])
redis.call('HDEL', KEYS[4], next[1])
return {'free', time[1]}`, ofLock, []any{bareHolder, bareFence, bareTTL, bareChannel}}

var bareAcquire = bare{`local time = redis.call('TIME')
redis.call('INFO', 'replication')
local head = redis.call('HGET', KEYS[1], 'pool')
local known = redis.call('HMGET', KEYS[3], 'n:' .. ARGV[2], 'i:' .. ARGV[2])
local id = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
local slot = redis.call('HGET', KEYS[1], id)
redis.call('HSET', KEYS[1], id, ARGV[1], 'pool', ARGV[1])
redis.call('ZADD', KEYS[2], time[1], id)
redis.call('HSET', KEYS[3], 'n:' .. ARGV[2], id, 'i:' .. ARGV[2], id)
redis.call('HDEL', KEYS[3], 'n', 'i')
return {'granted', id, time[1]}`, ofRing, []any{bareSlot}}

// bareRenew renews slots that are spread over the ring of ARGV[2] slots.
func bareRenew(slots int) bare {
	return bare{`local time = redis.call('TIME')
redis.call('INFO', 'replication')
local id = string.format('%.0f', ARGV[3] * 7919 % ARGV[2])
local head = redis.call('HGET', KEYS[1], 'pool')
if not redis.call('HGET', KEYS[1], id) then return {'lost'} end
redis.call('HSET', KEYS[1], id, ARGV[1])
redis.call('ZADD', KEYS[2], time[1], id)
return {'ok', time[1]}`, ringOf(slots), []any{bareSlot, slots}}
}

// ringOf are the keys of a bare ring.
func ringOf(slots int) (keys []string) {
	for _, key := range ofRing {
		keys = append(keys, strings.Replace(key, "bare", fmt.Sprintf("bare-%d", slots), 1))
	}
	return keys
}

// bareSlotsText writes slots ARGV[1] to ARGV[2]-1 of a bare ring.
const bareSlotsText = `for id = ARGV[1], ARGV[2] - 1 do
  redis.call('HSET', KEYS[1], id, ARGV[3])
  redis.call('ZADD', KEYS[2], id, id)
end
redis.call('HSET', KEYS[1], 'pool', ARGV[3])
return 1`

// fillBareRing writes all slots of a ring, in pieces that do not keep Redis for long.
func (s *redisServer) fillBareRing(ctx context.Context, keys []string, slots int) error {
	script := redis.NewScript(bareSlotsText)
	const piece = 1 << 15
	for from := 0; from < slots; from += piece {
		if err := script.Run(ctx, s, keys, from, min(from+piece, slots), bareSlot).Err(); err != nil {
			return err
		}
	}
	return nil
}

var bareOpen = bare{`local time = redis.call('TIME')
redis.call('INFO', 'replication')
local marker, value, record = redis.call('GET', KEYS[3]), redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
return {'ok', value or '', time[1]}`, ofCounter[:3], nil}

var bareIncrOnce = bare{`redis.call('INFO', 'replication')
if redis.call('GET', KEYS[4]) then return {'again'} end
local marker, record = redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2])
local value = redis.call('INCRBY', KEYS[1], 1)
redis.call('SET', KEYS[4], value .. ' 1', 'PX', ARGV[1])
return {'ok', value}`, ofCounter, []any{bareTTL}}

var bareSegment = bare{`redis.call('INFO', 'replication')
local marker, record = redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2])
local value = redis.call('INCRBY', KEYS[1], ARGV[1])
if value > tonumber(ARGV[2]) then return {'limit'} end
return {'ok', value}`, ofCounter[:3], []any{1000, 1_000_000_000}}

var bareLimit = bare{`local time = redis.call('TIME')
if redis.call('GET', KEYS[1]) then return {'again'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'ok', time[1]}`, []string{"coatcheck:limit:{caller-%06d}"}, []any{"1700000000000000 1", 1000}}
