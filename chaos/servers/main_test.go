//go:build check && linux

package servers

import (
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

func TestMain(m *testing.M) { chaostest.Main(m, nil) }
