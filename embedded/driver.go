package embedded

import "github.com/coatcheck/coatcheck/internal/driver"

var _ = register()

// register makes the URL embedded: of package redisstore one of this package.
func register() struct{} {
	driver.Register(func(config driver.Config) (driver.Store, error) {
		store, err := Open(Config{Dir: config.Dir, MaxKeys: config.MaxKeys, MaxBytes: config.MaxBytes, Logger: config.Logger})
		if err != nil {
			return nil, err
		}
		return store, nil
	})
	return struct{}{}
}
