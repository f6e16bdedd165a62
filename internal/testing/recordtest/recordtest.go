// Package recordtest reads and changes the records of operations (scripts/lib/record.lua) for
// tests that look into Redis, or play another process.
package recordtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/scripts"
)

// names are the words of a record, in their order.
var names = func() (names []string) {
	list := regexp.MustCompile(`(?s)return \{('state'.*?)\}`).FindStringSubmatch(scripts.OperationGet.Text().Source)
	for _, name := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(list[1], -1) {
		names = append(names, name[1])
	}
	return names
}()

// Words are the words of a record by their names, without the empty ones; an answer is among them,
// as answer.
func Words(record string) map[string]string {
	head, answer, _ := strings.Cut(record, "\n")
	found := map[string]string{}
	for i, word := range strings.Split(strings.TrimSuffix(head, "\t"), "\t") {
		found[names[i]] = word
	}
	found["answer"] = answer
	for name, word := range found {
		if word == "" {
			delete(found, name)
		}
	}
	return found
}

// With is a record with another word.
func With(record, name, word string) string {
	at := slices.Index(names, name)
	if at < 0 {
		panic(fmt.Sprintf("recordtest: %s is no word of a record", name))
	}
	head, answer, _ := strings.Cut(record, "\n")
	words := strings.Split(head, "\t")
	words[at] = word
	return strings.Join(words, "\t") + "\n" + answer
}

// Record is a record of these words, and an answer.
func Record(words map[string]string) string {
	record := strings.Repeat("\t", len(names)) + "\n" + words["answer"]
	for name, word := range words {
		if name != "answer" {
			record = With(record, name, word)
		}
	}
	return record
}
