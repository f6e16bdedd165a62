//go:build check

package embedded

import (
	"strconv"
	"testing"
)

func TestManyMoreHistories(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(histories+seed, 10), func(t *testing.T) { history(t, histories+seed) })
	}
}
