package supervise

import "golang.org/x/sys/unix"

// bootClock runs while the machine sleeps, and cannot be set.
const bootClock = unix.CLOCK_BOOTTIME

// adoptOrphans makes this process the parent of every descendant whose own parent has ended, so
// that none stays behind as a zombie that no process waits for.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has a process killed when the thread that starts it ends.
func dieWithParent(sys *unix.SysProcAttr) { sys.Pdeathsig = unix.SIGKILL }

// self is the path of the running program, also where its file was replaced meanwhile.
func self() (string, error) { return "/proc/self/exe", nil }
