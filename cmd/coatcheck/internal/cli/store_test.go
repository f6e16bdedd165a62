package cli

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestReplicasGoneSaysWhichAreGone(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, row := range []struct {
		args         []string
		code         int
		says, prints string
	}{
		{nil, done, "11 seconds", "No write has waited for a replica that is gone.\n"},
		{[]string{"10.0.0.2:6379", "10.0.0.3:6379"}, failed, "no write has waited for 10.0.0.2:6379, 10.0.0.3:6379, which is not noted", ""},
		{[]string{"--json", "10.0.0.2:6379"}, failed, "which is not noted", `{"gone":[]}` + "\n"},
		{[]string{""}, usage, `"" has not the form host:port`, ""},
		{[]string{"10.0.0.2"}, usage, `"10.0.0.2" has not the form host:port`, ""},
	} {
		args := slices.Concat([]string{"store", "replicas-gone", "--redis", redis.URL()}, row.args)
		execute(t, nil, args...).exits(row.code, row.says).prints(row.prints)
	}
}
