package muxpattern

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ofWildcards finds wildcards that the mux refuses, and braces that it takes for text.
func ofWildcards(method, host, rest string) finding {
	segments := strings.Split(rest, "/")
	seen := map[string]bool{}
	for i, segment := range segments {
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		what, instead := ofWildcard(segment, i == len(segments)-1, seen)
		if what == "" {
			continue
		}
		mended := slices.Clone(segments)
		mended[i] = instead
		if instead == "" {
			mended = slices.Delete(mended, i, i+1)
		}
		return finding{what: what, meant: join(method, host+strings.Join(mended, "/"))}
	}
	return finding{}
}

// ofWildcard is what is wrong with a segment that has a brace, and what to write instead: "" for
// nothing. seen are the names before it; its own is added.
func ofWildcard(segment string, isLast bool, seen map[string]bool) (what, instead string) {
	inner := strings.TrimSuffix(strings.TrimPrefix(segment, "{"), "}")
	if segment != "{"+inner+"}" || strings.ContainsAny(inner, "{}") {
		return notWhole(segment)
	}
	if inner == "$" {
		if isLast {
			return "", ""
		}
		return "{$} stands only at the end", ""
	}
	name, isRest := strings.CutSuffix(inner, "...")
	switch good := nameOf(name); {
	case name == "" && isRest:
		return "a wildcard has a name", "{rest...}"
	case name == "":
		return "a wildcard has a name", "{id}"
	case strings.Trim(name, ".…") != name:
		return "the three dots stand after the name", "{" + good + "...}"
	case isRest && !isLast:
		return fmt.Sprintf("{%s} stands only at the end", inner), "{" + name + "}"
	case good != name:
		return "a wildcard's name has letters, digits and _, and no digit first", "{" + strings.Replace(inner, name, good, 1) + "}"
	case seen[name]:
		return "two wildcards have the name " + name, "{" + strings.Replace(inner, name, another(name, seen), 1) + "}"
	}
	seen[name] = true
	return "", ""
}

// notWhole is what is wrong with a segment that has braces and is not one wildcard.
func notWhole(segment string) (what, instead string) {
	_, after, _ := strings.Cut(segment, "{")
	word := words.FindString(after)
	if word == "" {
		word = words.FindString(segment)
	}
	switch instead = "{" + nameOf(word) + "}"; {
	case !paired(segment):
		return "a brace has no partner", instead
	case strings.Contains(segment, "{{"):
		return "a wildcard has one pair of braces", instead
	}
	return "a wildcard is all that stands between two slashes", instead
}

// paired reports whether each brace of a segment has its partner.
func paired(segment string) bool {
	open := 0
	for _, char := range segment {
		switch char {
		case '{':
			open++
		case '}':
			open--
		}
		if open < 0 {
			return false
		}
	}
	return open == 0
}

var (
	words    = regexp.MustCompile(`[\pL\p{Nd}_]+`)
	unnamely = regexp.MustCompile(`[^\pL\p{Nd}_]+`)
	digit    = regexp.MustCompile(`^\p{Nd}`)
)

// nameOf makes a name for a wildcard of a text: a Go identifier.
func nameOf(text string) string {
	name := strings.Trim(unnamely.ReplaceAllString(text, "_"), "_")
	switch {
	case words.FindString(text) == text && text != "" && !digit.MatchString(text):
		return text // also with _ at an end
	case name == "":
		return "id"
	case digit.MatchString(name):
		return "p" + name
	}
	return name
}

// another is a name for a second wildcard of one name.
func another(name string, seen map[string]bool) string {
	for n := 2; ; n++ {
		if other := fmt.Sprintf("%s%d", name, n); !seen[other] {
			return other
		}
	}
}
