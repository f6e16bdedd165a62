package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// poolPins is the setting that pins pools: a map in a file, one line as flag or variable.
func poolPins(into *map[string]workerlease.Pin) *Setting {
	help := "what worker-id pools are, so that it outlives Redis: {orders: {layout: 41/5/5/12, epoch: 2020-01-01T00:00:00Z, " +
		"datacenter: 3, ttl: 30s}}, of which each part can be left out; a request for another shape or TTL is refused; alike in all " +
		"that use a pool; empty: as the first grant fixes it"
	return &Setting{Name: "pools", Unit: "YAML map", Help: help, Nested: true, Parse: func(text string) (err error) {
		*into, err = parsePools(text)
		return err
	}}
}

func parsePools(text string) (map[string]workerlease.Pin, error) {
	var written map[string]map[string]string
	if err := yaml.Unmarshal([]byte(text), &written); err != nil {
		return nil, errors.New("not a map of pools, such as {orders: {layout: 41/5/5/12, datacenter: 3}}")
	}
	var pins map[string]workerlease.Pin
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if err := checkName(name); err != nil {
			return nil, err
		}
		pin, err := parsePin(written[name])
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
		if pins == nil {
			pins = map[string]workerlease.Pin{}
		}
		pins[name] = pin
	}
	return pins, nil
}

// partForms says what belongs into a part of a pool.
var partForms = map[string]string{
	"epoch":      "a time, such as 2020-01-01T00:00:00Z",
	"datacenter": "a whole number",
	"ttl":        "a duration from 100ms to 24h, such as 30s",
}

// parsePin reads one pool. What is left out is a new pool's default; a TTL is then not pinned.
func parsePin(parts map[string]string) (pin workerlease.Pin, err error) {
	layout, epoch, datacenter := snowflake.MustLayout(snowflake.DefaultLayout), snowflake.DefaultEpoch, 0
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		text := parts[part]
		switch part {
		case "layout":
			layout, err = snowflake.ParseLayout(text)
		case "epoch":
			epoch, err = time.Parse(time.RFC3339, text)
		case "datacenter":
			datacenter, err = strconv.Atoi(text)
		case "ttl":
			pin.TTL, err = ParseDuration(text)
			if err == nil && (pin.TTL < workerlease.MinTTL || pin.TTL > workerlease.MaxTTL) {
				err = strconv.ErrRange
			}
		default:
			err = errors.New("a pool has layout, epoch, datacenter and ttl")
		}
		if form := partForms[part]; err != nil && form != "" {
			err = fmt.Errorf("%q is not %s", text, form)
		}
		if err != nil {
			return pin, fmt.Errorf("%s: %w", part, err)
		}
	}
	shape, err := shapeOf(layout, epoch, datacenter)
	pin.Shape = shape
	return pin, err
}

// shapeOf is a shape of ids. A layout that has ended is one: the pool is refused then, and all else
// is served.
func shapeOf(layout snowflake.Layout, epoch time.Time, datacenter int) (workerlease.Shape, error) {
	now := time.Now()
	switch {
	case epoch.Before(time.Unix(0, 0)) || epoch.After(now) || !epoch.Equal(epoch.Truncate(time.Millisecond)):
		return workerlease.Shape{}, errors.New("epoch: a whole millisecond from 1970-01-01T00:00:00Z to now")
	case datacenter < 0 || datacenter >= 1<<layout.Datacenter:
		return workerlease.Shape{}, fmt.Errorf("datacenter: 0 to %d in layout %v", 1<<layout.Datacenter-1, layout)
	}
	return workerlease.Shape{Layout: layout.String(), Datacenter: datacenter, Epoch: epoch.UTC()}, nil
}
