package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// cell is what was counted of one side under one kind of fault.
type cell struct{ faults, shared, operations, violations, waited int64 }

func (c *cell) String() string {
	return fmt.Sprintf("%s · %s · **%s**", grouped(c.faults), grouped(c.operations), grouped(c.violations))
}

func (c *cell) add(row evidence.Row) {
	c.faults += row.Faults
	if row.Shared {
		c.shared += row.Faults
	}
	c.operations += row.Operations
	c.violations += row.Violations
	c.waited += row.Waited
}

// kind is a kind of fault in one layer.
type kind struct{ fault, layer string }

// matrix is what was counted for one promise.
type matrix struct {
	kinds []kind
	whos  []string // ours first
	ours  map[string]bool
	cells map[kind]map[string]*cell
	all   map[string]*cell
}

func matrixOf(rows []evidence.Row, promise string) *matrix {
	m := &matrix{ours: map[string]bool{}, cells: map[kind]map[string]*cell{}, all: map[string]*cell{}}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row evidence.Row) bool { return row.Promise != promise })
	slices.SortStableFunc(rows, func(a, b evidence.Row) int {
		switch {
		case a.Peer == b.Peer:
			return 0
		case b.Peer:
			return -1
		}
		return 1
	})
	for _, row := range rows {
		at := kind{row.Fault, row.Layer}
		if m.cells[at] == nil {
			m.cells[at] = map[string]*cell{}
			m.kinds = append(m.kinds, at)
		}
		if m.all[row.Who] == nil {
			m.all[row.Who] = &cell{}
			m.whos = append(m.whos, row.Who)
			m.ours[row.Who] = !row.Peer
		}
		if m.cells[at][row.Who] == nil {
			m.cells[at][row.Who] = &cell{}
		}
		m.cells[at][row.Who].add(row)
		m.all[row.Who].add(row)
	}
	slices.SortStableFunc(m.kinds, func(a, b kind) int { return layerOrder(a.layer) - layerOrder(b.layer) })
	return m
}

// layerOrder has real processes first.
func layerOrder(layer string) int {
	return slices.Index([]string{evidence.Processes, evidence.InProcess, evidence.Simulated}, layer)
}

// faults are those that ours have stood, of a layer or of all.
func (m *matrix) faults(layer string) (n int64) {
	for at, cells := range m.cells {
		for who, c := range cells {
			if m.ours[who] && (layer == "" || at.layer == layer) {
				n += c.faults - c.shared
			}
		}
	}
	return n
}

// String is the table in Markdown.
func (m *matrix) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | layer | %s |\n|---|---|%s\n", strings.Join(m.whos, " | "), strings.Repeat("---|", len(m.whos)))
	for _, at := range m.kinds {
		fmt.Fprintf(&b, "| %s | %s |", at.fault, at.layer)
		for _, who := range m.whos {
			if c := m.cells[at][who]; c != nil {
				fmt.Fprintf(&b, " %v |", c)
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("| " + totalRow + " | |")
	for _, who := range m.whos {
		fmt.Fprintf(&b, " %v |", m.all[who])
	}
	return b.String() + "\n"
}

// waited says how many processes of peers were replaced.
func (m *matrix) waited() string {
	var parts []string
	for _, who := range m.whos {
		if n := m.all[who].waited; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", who, grouped(n)))
		}
	}
	if parts == nil {
		return ""
	}
	return "Processes that waited for good, were killed and replaced: " + strings.Join(parts, ", ") + ".\n"
}

// totalRow heads the last row of a table.
const totalRow = "**all**"

// grouped writes a number with a comma before each three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
