package main

import "strings"

// tables are those that chaos/prices writes between markers, with the text before each.
var tables = []struct{ name, text string }{
	{"restarts", "### After restarts and losses\n\nSeconds until the next one is handed out, and values that are left out.\n\n"},
	{"dead waiters", "### While waiters die\n\nThe first second after it, and the worst of those that follow, beside the one before.\n\n"},
	{"outages", "### During outages\n\nThe longest time in seconds in which no value and no lock was handed out, and then of ids.\n\n"},
}

// prices are the tables of the page before.
func prices(before string) string {
	text := "\n## Prices\n\nWhat safety costs, measured from outside by `make prices`;\n[operations.md](operations.md#what-safety-costs) says what each row is and what lowers it.\n"
	for _, table := range tables {
		begin, end := "<!-- prices of "+table.name+" -->\n", "<!-- end of prices of "+table.name+" -->\n"
		_, rest, _ := strings.Cut(before, begin)
		rows, _, _ := strings.Cut(rest, end)
		text += "\n" + table.text + begin + rows + end
	}
	return text
}
