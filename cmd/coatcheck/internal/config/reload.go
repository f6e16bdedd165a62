package config

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// Reloading is how a process takes changes: first its file's settings, then the named files.
type Reloading struct {
	Sources *Sources // in force
	Log     *slog.Logger

	// reads and checks the settings again, but not the files that they name
	Read func() (next *Sources, err error)
	// whether a setting that can be taken cannot be now; nil = all can
	Fixed func(name string) bool
	Take  func(ctx context.Context, changed []string) error // puts those in force
	Files []Reloadable
}

// Reloadable is a file that a running process reads again. If that fails, its last content stays.
type Reloadable struct {
	Name  string
	Apply func(context.Context) error
}

// Reload reads everything again. It logs each fault, and a faulty file's last content stays.
func (r *Reloading) Reload(ctx context.Context) {
	r.reloadSettings(ctx)
	for _, one := range r.Files {
		if err := one.Apply(ctx); err != nil {
			r.Log.Error("not read again; what was read before stays in force", "what", one.Name, "error", err)
		} else {
			r.Log.Info("read again", "what", one.Name)
		}
	}
}

// reloadSettings takes the settings that can change while the process runs, all of them or none,
// and names the others that have changed.
func (r *Reloading) reloadSettings(ctx context.Context) {
	next, err := r.Read()
	if err != nil {
		for fault := range strings.Lines(err.Error()) {
			r.Log.Error("the settings have a fault; those that were read before stay in force", "fault", strings.TrimSpace(fault))
		}
		return
	}
	var changed []string
	for i, s := range r.Sources.Table {
		switch {
		case s.Value == next.Table[i].Value:
		case !s.Hot || r.Fixed != nil && r.Fixed(s.Name):
			r.Log.Warn("a setting has changed that is read at the start alone: restart needed", "setting", s.Name)
		default:
			changed = append(changed, s.Name)
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := r.Take(ctx, changed); err != nil {
		r.Log.Error("new settings cannot be taken; those that were read before stay in force",
			"settings", strings.Join(changed, ", "), "error", err)
		return
	}
	for i, s := range r.Sources.Table {
		if slices.Contains(changed, s.Name) {
			s.Value, s.Source, s.Line = next.Table[i].Value, next.Table[i].Source, next.Table[i].Line
		}
	}
	r.Log.Info("new settings are in force", "settings", strings.Join(changed, ", "))
}
