package embedded

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// imageWords bounds how many fields or members one command of an image has.
const imageWords = 1024

// appendImageLocked writes the commands that recreate a key's current value, whatever it was
// before; for a missing key only DEL.
func (s *Store) appendImageLocked(to []byte, key string) []byte {
	switch s.redis.Type(key) {
	case "string":
		value, _ := s.redis.Get(key)
		to = appendCommand(to, "SET", key, value)
	case "hash":
		to = appendCommand(to, "DEL", key)
		to = appendChunks(to, "HSET", key, s.fieldsLocked(key))
	case "set":
		members, _ := s.redis.Members(key)
		to = appendCommand(to, "DEL", key)
		to = appendChunks(to, "SADD", key, members)
	case "zset":
		to = appendCommand(to, "DEL", key)
		to = appendChunks(to, "ZADD", key, s.scoresLocked(key))
	case "list":
		values, _ := s.redis.List(key)
		to = appendCommand(to, "DEL", key)
		to = appendChunks(to, "RPUSH", key, values)
	default:
		return appendCommand(to, "DEL", key)
	}
	if at := s.redis.TTL(key); at > 0 {
		to = s.appendExpiryLocked(to, key, at)
	}
	return to
}

func appendChunks(to []byte, command, key string, words []string) []byte {
	for chunk := range slices.Chunk(words, imageWords) {
		to = appendCommand(to, append([]string{command, key}, chunk...)...)
	}
	return to
}

// appendExpiryLocked writes a key's expiry as wall-clock time, rounded up to milliseconds.
func (s *Store) appendExpiryLocked(to []byte, key string, at time.Duration) []byte {
	left := at - s.clock.now()
	until := time.Now().Add(left + time.Millisecond - 1).UnixMilli()
	return appendCommand(to, "PEXPIREAT", key, strconv.FormatInt(until, 10))
}

func (s *Store) fieldsLocked(key string) []string {
	reply, _ := s.askLocked(nil, "HGETALL", key)
	return words(reply)
}

func (s *Store) scoresLocked(key string) []string {
	scores, _ := s.redis.SortedSet(key)
	pairs := make([]string, 0, 2*len(scores))
	for member, score := range scores {
		pairs = append(pairs, scoreText(score), member)
	}
	return pairs
}

// scoreText writes a score so that reading it gives the same number.
func scoreText(score float64) string {
	switch {
	case math.IsInf(score, 1):
		return "+inf"
	case math.IsInf(score, -1):
		return "-inf"
	}
	return strconv.FormatFloat(score, 'g', -1, 64)
}

func words(reply any) []string {
	items, _ := reply.([]any)
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i], _ = item.(string)
	}
	return texts
}

// appendPartsLocked writes the current values of some fields or members of a key. A key that is not
// there, or is of a type without them, is written whole.
func (s *Store) appendPartsLocked(to []byte, key string, parts []string) []byte {
	var set, gone []string
	var put, remove string
	switch s.redis.Type(key) {
	case "hash":
		put, remove = "HSET", "HDEL"
		reply, _ := s.askLocked(nil, append([]string{"HMGET", key}, parts...)...)
		values, _ := reply.([]any)
		for i, part := range parts {
			if value, ok := values[i].(string); ok {
				set = append(set, part, value)
			} else {
				gone = append(gone, part)
			}
		}
	case "set":
		put, remove = "SADD", "SREM"
		for _, part := range parts {
			if member, _ := s.redis.IsMember(key, part); member {
				set = append(set, part)
			} else {
				gone = append(gone, part)
			}
		}
	case "zset":
		put, remove = "ZADD", "ZREM"
		scores, _ := s.redis.SortedSet(key)
		for _, part := range parts {
			if score, ok := scores[part]; ok {
				set = append(set, scoreText(score), part)
			} else {
				gone = append(gone, part)
			}
		}
	default:
		return s.appendImageLocked(to, key)
	}
	to = appendChunks(to, put, key, set)
	return appendChunks(to, remove, key, gone)
}
