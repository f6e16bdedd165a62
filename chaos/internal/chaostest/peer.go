package chaostest

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// PeerClient is a client of go-redis as a peer uses it, which follows the sentinels if the URL is
// one of a field's. Without retries, by which it would do things twice.
func PeerClient(url string) (*redis.Client, error) {
	after, bySentinel := strings.CutPrefix(url, "redis+sentinel://")
	if !bySentinel {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		options.MaxRetries, options.DialerRetries, options.ReadTimeout, options.DialTimeout = -1, 1, time.Second, time.Second
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClient(options), nil
	}
	user, password := "", ""
	if login, where, found := strings.Cut(after, "@"); found {
		user, password, _ = strings.Cut(login, ":")
		after = where
	}
	addresses, master, _ := strings.Cut(after, "/")
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: master, SentinelAddrs: strings.Split(addresses, ","), Username: user, Password: password,
		MaxRetries: -1, ReadTimeout: time.Second,
	}), nil
}
