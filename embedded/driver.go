package embedded

import "github.com/coatcheck/coatcheck/internal/driver"

// This package serves the URL embedded: of package redisstore.
func init() { //nolint:gochecknoinits // as drivers of database/sql do
	driver.Register(func(config driver.Config) (driver.Store, error) {
		store, err := Open(Config{MaxBytes: config.MaxBytes, Logger: config.Logger})
		if err != nil {
			return nil, err
		}
		return store, nil
	})
}
