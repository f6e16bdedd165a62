package config

import (
	"os"
	"regexp"

	"github.com/coatcheck/coatcheck/workerlease"
)

// derive sets unset values that follow from other settings.
func (c *Service) derive() {
	c.Server.Locks.Skew = c.Server.Workers.Skew
	if c.Server.Workers.NewPools == "" {
		c.Server.Workers.NewPools = workerlease.Wait
		if c.Server.Dev || c.OnEmbedded() {
			c.Server.Workers.NewPools = workerlease.Trust
		}
	}
	if c.Server.Identity == "" {
		host, _ := os.Hostname() // without a name it leases without an identity
		c.Server.Identity = NameOf(host)
	}
}

// OnEmbedded reports whether the store is the embedded one.
func (c *Service) OnEmbedded() bool { return c.Store.URL == "" || c.Store.URL == "embedded:" }

var unnamed = regexp.MustCompile(`[^A-Za-z0-9._:~@-]+`)

// NameOf makes a name as the HTTP interface takes it of a text.
func NameOf(text string) string {
	text = unnamed.ReplaceAllString(text, "-")
	return text[:min(len(text), 200)]
}
