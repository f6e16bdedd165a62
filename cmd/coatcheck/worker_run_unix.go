//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/holder"
)

// run leases, runs the command, and releases.
func (r *workerRun) run(ctx context.Context, where pools) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // of the lease: a signal is the command's affair once that runs
	defer end()
	waiting := context.AfterFunc(ctx, end)
	h, err := r.obtain(life, where)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed()...)
	defer signal.Stop(signals)
	err = h.open(life)
	if !waiting() || err != nil {
		h.giveBack()
		return errors.Join(context.Cause(ctx), err)
	}
	err = r.supervise(h, signals)
	h.giveBack()
	return err
}

// attempt asks once for a lease, and refuses one that took long: the holder's clock, which began when the reply came, is as late as the reply was.
func (r *workerRun) attempt(ctx context.Context, where pools) (*held, error) {
	h := &held{}
	asked := sinceBoot()
	var err error
	h.Holder, err = where.hold(ctx, r.pool, r.request, client.HoldOptions{Observe: h.observe})
	if err != nil {
		return nil, err
	}
	h.late = sinceBoot() - asked
	h.lease, err = h.Current()
	if err == nil && h.late <= h.lease.TTL/4 {
		return h, nil
	}
	h.giveBack()
	return nil, errors.Join(holder.ErrLate, err)
}

// observe notes what became of the last renewal.
func (h *held) observe(e client.HoldEvent) {
	if e.Kind == holder.Renewed || e.Kind == holder.RenewalFailed {
		h.fault.Store(&e.Err)
	}
}

// open waits until the window of a lease has begun.
func (h *held) open(ctx context.Context) error {
	lease, err := h.Lease()
	if err != nil {
		return laterError{err}
	}
	select {
	case <-ctx.Done():
	case <-time.After(lease.NotBefore.Sub(lease.Time) - time.Since(lease.At)):
	}
	return nil
}

func (h *held) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = h.Release(ctx, time.Time{}) // what it stamped last is the command's secret. A lease that is not released ends with its window
}

// window is the end of the lease's window as it is known now.
func (h *held) window() (window, error) {
	now := sinceBoot() // before all else: a pause between here and the last line makes the end earlier, never later
	lease, err := h.Lease()
	left := lease.NotAfter.Sub(lease.Time) - time.Since(lease.At) - h.late
	return window{lease.NotAfter, now + left}, err
}

// environment is what the command is told of its lease.
func (h *held) environment(file windowFile) []string {
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	return append(os.Environ(),
		"WORKER_ID="+strconv.Itoa(h.lease.WorkerID),
		"WORKER_POOL="+h.lease.Pool,
		"WORKER_LAYOUT="+h.lease.Layout,
		"WORKER_EPOCH_MS="+millis(h.lease.Epoch),
		"WORKER_DATACENTER="+strconv.Itoa(h.lease.Datacenter),
		"WORKER_FENCE="+strconv.FormatInt(h.lease.Fence, 10),
		"WORKER_NOT_BEFORE_MS="+millis(h.lease.NotBefore),
		"WORKER_NOT_AFTER_MS="+millis(h.lease.NotAfter),
		"WORKER_NOT_AFTER_FILE="+string(file))
}

// allowed is how much time a window leaves for its end: enough for renewals to fail a few times before.
func allowed(ttl, grace time.Duration) allowance {
	return allowance{grace: min(grace, ttl/4), margin: min(ttl/10, time.Second)}
}

// supervise runs the command to its end.
func (r *workerRun) supervise(h *held, signals <-chan os.Signal) error {
	file, err := newWindowFile()
	if err != nil {
		return err
	}
	defer file.remove()
	s := &supervision{held: h, file: file, allowance: allowed(h.lease.TTL, r.grace), signals: signals}
	if s.window, err = h.window(); err == nil {
		err = file.write(s.window)
	}
	if err != nil {
		return err
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	if s.guarded, err = startGuard(r.command, h.environment(file), file, s.allowance); err != nil {
		return err
	}
	s.watch()
	return s.verdict()
}

// supervision is a command that runs under a guard, and the lease for it. The guard stops the command; here the guard is watched.
type supervision struct {
	*held
	*guarded

	file      windowFile
	allowance allowance
	signals   <-chan os.Signal

	window  window // as the file has it
	group   int    // of the command; 0 = not known yet
	outcome report
	cause   error // why the lease was lost
	over    bool  // the guard has ended when the command's time was over
}

// watch returns when the guard has ended, and the command with it.
func (s *supervision) watch() {
	defer s.stop()
	clock := time.NewTicker(s.allowance.tick())
	defer clock.Stop()
	for lost := s.Context().Done(); ; {
		select {
		case number := <-s.signals:
			s.pass(number)
		case <-lost:
			lost, s.cause = nil, context.Cause(s.Context())
			s.stop()
		case r := <-s.reports:
			s.hear(r)
		case <-s.ended:
			s.over = sinceBoot() >= s.window.boot-s.allowance.margin-s.allowance.grace
			s.bury()
			return
		case <-clock.C:
		}
		s.refresh()
		if sinceBoot() >= s.window.boot-s.allowance.margin/2 { // the guard should have done it by now
			s.kill()
		}
	}
}

func (s *supervision) hear(r report) {
	if r.Group != 0 {
		s.group = r.Group
		return
	}
	s.outcome = r
}

// refresh writes the window's end down when it has moved.
func (s *supervision) refresh() {
	w, err := s.held.window()
	if err != nil || !w.server.After(s.window.server) {
		return
	}
	if s.file.write(w) == nil { // else the command ends with the window that the file has
		s.window = w
	}
}

// kill ends the command, and the guard that did not.
func (s *supervision) kill() {
	if s.group != 0 {
		_ = syscall.Kill(-s.group, syscall.SIGKILL)
	}
	_ = s.process.Kill() // Linux kills the command with it, known or not
}

// bury reads what the guard has told last. If it was killed the command is as well, and its end waited for as long as the window lasts.
func (s *supervision) bury() {
	for len(s.reports) > 0 {
		s.hear(<-s.reports)
	}
	if s.outcome.Ended || s.outcome.Failed != "" || s.group == 0 {
		return
	}
	for sinceBoot() < s.window.boot && !errors.Is(syscall.Kill(-s.group, syscall.SIGKILL), syscall.ESRCH) {
		if pid, _ := syscall.Wait4(-s.group, nil, syscall.WNOHANG, nil); pid <= 0 { // what the guard had adopted is ours now
			time.Sleep(s.allowance.tick())
		}
	}
}

// verdict is the command's exit code, or why it did not end by itself.
func (s *supervision) verdict() error {
	switch {
	case s.outcome.Failed != "":
		return fmt.Errorf("the command could not be started: %s", s.outcome.Failed)
	case s.outcome.Ended && !s.outcome.Cut:
		return exitError{code: s.outcome.Code}
	case s.cause == nil && !s.outcome.Cut && !s.over:
		return errors.New("the command was killed, since the process that guards it was")
	}
	return laterError{fmt.Errorf("worker id %d of pool %q was lost, and the command stopped before the window of its lease could end: %w\n"+
		"Look whether the service, or Redis, can be reached, and start the command again. A longer --ttl outlasts longer outages", s.lease.WorkerID, s.lease.Pool, s.why())}
}

// why is the reason for a loss.
func (s *supervision) why() error {
	cause := s.cause
	if cause == nil {
		cause = errors.New("no renewal was confirmed in time")
	}
	if fault := s.fault.Load(); fault != nil && *fault != nil {
		return fmt.Errorf("%w; the last one failed: %w", cause, *fault)
	}
	return cause
}
