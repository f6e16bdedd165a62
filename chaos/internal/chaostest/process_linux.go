package chaostest

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitStopped waits until all threads of a child stand still, or it has ended. A caller that waits
// for its end still hears of that.
func awaitStopped(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
