package redisstore

import (
	"fmt"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// defaultPrefix begins every key unless the configuration says otherwise.
const defaultPrefix = "coatcheck:"

var prefixForm = lazyregexp.New(`^[A-Za-z0-9._:~@-]*$`)

// checkPrefix refuses a prefix that could break the hash tag after it.
func checkPrefix(prefix string) error {
	if len(prefix) > 100 || !prefixForm().MatchString(prefix) {
		return fmt.Errorf("prefix %q: up to 100 characters of A–Z a–z 0–9 . _ : ~ @ -", prefix)
	}
	return nil
}
