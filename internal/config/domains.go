package config

import (
	"os"
	"regexp"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Store is the part of the configuration that package redisstore takes.
func (c *Service) Store() redisstore.Config {
	return redisstore.Config{
		URL: c.Redis, Prefix: c.Prefix, Ack: int(c.Ack), Restarts: redisstore.Restarts(c.Restarts), Timeout: c.StoreTimeout, DataDir: c.DataDir, MaxKeys: int(c.MaxKeys), MaxBytes: c.MaxBytes,
	}
}

// Counters is the part of the configuration that package counter takes.
func (c *Service) Counters() counter.Config {
	return counter.Config{AfterLoss: counter.AfterLoss(c.CounterAfterLoss), Margin: c.CounterMargin, HoldOff: c.CounterHoldOff}
}

// Locks is the part of the configuration that package lock takes.
func (c *Service) Locks() lock.Config {
	return lock.Config{AfterLoss: lock.AfterLoss(c.LockAfterLoss), LongestTTL: c.LockLongestTTL, Skew: c.ClockSkew}
}

// Workers is the part of the configuration that package workerlease takes.
func (c *Service) Workers() workerlease.Config {
	return workerlease.Config{NewPools: c.UnknownPools(), Skew: c.ClockSkew, Cooldown: c.WorkerCooldown, LongestTTL: c.WorkerLongest, Pools: c.Pools}
}

// UnknownPools is what a worker-id pool is that the store knows nothing of.
func (c *Service) UnknownPools() workerlease.NewPools {
	switch {
	case c.NewPools != "":
		return workerlease.NewPools(c.NewPools)
	case c.Dev || c.Redis == "" || c.Redis == "embedded:":
		return workerlease.Trust
	}
	return workerlease.Wait
}

// Quota is what one principal may have in the store.
func (c *Service) Quota() idempotency.Quota {
	return idempotency.Quota{Operations: int(c.QuotaOperations), Bytes: c.QuotaBytes}
}

var unnamed = regexp.MustCompile(`[^A-Za-z0-9._:~@-]+`)

// LeasesAs is the identity under which the service leases worker ids: the host's name without what
// no name has, unless another was set.
func (c *Service) LeasesAs() string {
	if c.Identity != "" {
		return c.Identity
	}
	host, err := os.Hostname()
	if err != nil {
		return "" // it then leases without an identity
	}
	return NameOf(host)
}

// NameOf makes a name as the HTTP interface takes it of a text.
func NameOf(text string) string {
	text = unnamed.ReplaceAllString(text, "-")
	return text[:min(len(text), 200)]
}

// Segments is the part of the configuration that package segment takes.
func (c *Service) Segments() segment.Config {
	return segment.Config{Period: c.SegmentPeriod}
}
