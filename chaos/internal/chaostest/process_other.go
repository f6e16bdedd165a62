//go:build !linux

package chaostest

import (
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// awaitStopped waits until a child stands still, or has ended.
func awaitStopped(pid int) {
	for ; ; time.Sleep(time.Millisecond) {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
		if err != nil || strings.ContainsAny(string(state), "TZ") {
			return
		}
	}
}
