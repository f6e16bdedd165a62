package redisconn

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redirect returns an error's kind of "not run here", "" if unknown, and where to go instead.
func Redirect(err error) (target, kind string) {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return "", ""
	}
	switch words := strings.Fields(reply.Error()); {
	case len(words) == 0:
	case (words[0] == "MOVED" || words[0] == "ASK") && len(words) == 3:
		return Address(words[2]), words[0]
	case words[0] == "NOSCRIPT" || words[0] == "TRYAGAIN":
		return "", words[0]
	}
	return "", ""
}

// Address writes an address as clients are known by: Redis names an IPv6 address without brackets.
func Address(named string) string {
	colon := strings.LastIndex(named, ":")
	if colon < 0 {
		return named
	}
	return net.JoinHostPort(strings.Trim(named[:colon], "[]"), named[colon+1:])
}
