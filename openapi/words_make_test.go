package openapi

import "strings"

// paragraph is text as the document's descriptions have it: `code` and **strong** are all that they
// use.
type paragraph []span

type span struct {
	Text         string
	Code, Strong bool
}

// paragraphs reads a description; lines of one paragraph are one.
func paragraphs(text string) (list []paragraph) {
	for part := range strings.SplitSeq(text, "\n\n") {
		if part = strings.Join(strings.Fields(part), " "); part != "" {
			list = append(list, spans(part))
		}
	}
	return list
}

// spans takes a paragraph apart. A mark that is not closed stands for itself.
func spans(text string) (list paragraph) {
	for text != "" {
		plain, marked, rest, mark := cut(text)
		if plain != "" {
			list = append(list, span{Text: plain})
		}
		if mark != "" {
			list = append(list, span{Text: marked, Code: mark == "`", Strong: mark == "**"})
		}
		text = rest
	}
	return list
}

// cut finds the first text between two marks.
func cut(text string) (before, marked, behind, mark string) {
	code, strong := strings.Index(text, "`"), strings.Index(text, "**")
	at, mark := code, "`"
	if code < 0 || strong >= 0 && strong < code {
		at, mark = strong, "**"
	}
	if at < 0 {
		return text, "", "", ""
	}
	marked, behind, closed := strings.Cut(text[at+len(mark):], mark)
	if !closed {
		return text, "", "", ""
	}
	return text[:at], marked, behind, mark
}
