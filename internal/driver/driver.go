// Package driver is where package embedded registers itself, so that a program that only speaks to
// Redis does not link miniredis and its Lua: package redisstore opens what is registered.
package driver

import (
	"context"
	"errors"
	"log/slog"
	"net"
)

// ErrNone is the error of a program that asks for the embedded store and does not link it.
var ErrNone = errors.New(`this program does not link it; import _ "github.com/coatcheck/coatcheck/embedded"`)

// Config is how much a store in the process keeps, as in package embedded.
type Config struct {
	MaxBytes int64
	Logger   *slog.Logger
}

// Store is a store in the process that speaks Redis's protocol. It is safe for concurrent use.
type Store interface {
	Dial(ctx context.Context) (net.Conn, error)
	Close() error
}

var open func(Config) (Store, error)

// Register sets how a store is opened. It is called once, when the program starts.
func Register(opener func(Config) (Store, error)) { open = opener }

// Check returns [ErrNone] where no store is registered.
func Check() error {
	if open == nil {
		return ErrNone
	}
	return nil
}

// Open opens a store. The error is [ErrNone] where none is registered.
//
//nolint:ireturn // the one type that it returns is of a package that imports this one
func Open(config Config) (Store, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	return open(config)
}
