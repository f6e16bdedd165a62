package access_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	// servers that are away are what some of these tests are about
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
