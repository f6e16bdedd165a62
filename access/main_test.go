package access_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // servers that are away are what some of these tests are about
	goleak.VerifyTestMain(m)
}
