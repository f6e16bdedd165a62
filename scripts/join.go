package scripts

import (
	"slices"
	"strings"
)

// statement is a statement of a file's top level, with the comments before it.
type statement struct {
	text  string
	names []string // that it defines
	words []string // all names in it, also the keys of tables
}

// join puts each definition of the library parts that a script needs before the first statement of
// the script that needs it. Redis runs the whole text at each call, and makes the functions anew:
// a call that ends early makes none for what would come later, and a definition that the script
// does not need is left out.
func join(text string, parts []string) string {
	var defined []statement
	at := map[string]int{} // the last definition of each name
	for _, part := range parts {
		for _, definition := range split(read("lib/" + part + ".lua")) {
			for _, name := range definition.names {
				at[name] = len(defined)
			}
			defined = append(defined, definition)
		}
	}
	var joined strings.Builder
	placed := make([]bool, len(defined))
	for _, own := range split(text) {
		for _, i := range needed(own, defined, at, placed) {
			joined.WriteString(defined[i].text)
		}
		joined.WriteString(own.text)
	}
	return joined.String()
}

// needed places the definitions that a statement needs, and those that they need, and returns them
// in the order of the library.
func needed(s statement, defined []statement, at map[string]int, placed []bool) (all []int) {
	for _, word := range s.words {
		if i, is := at[word]; is && !placed[i] {
			placed[i] = true
			all = append(append(all, i), needed(defined[i], defined, at, placed)...)
		}
	}
	slices.Sort(all)
	return all
}

// split takes a file apart. A statement begins in the first column, and goes on in lines that are
// indented or close it.
func split(text string) (all []statement) {
	var code, comments string // of the statement
	end := func() {
		all = append(all, statementOf(comments, code))
		code, comments = "", ""
	}
	for line := range strings.Lines(text) {
		begins := !strings.ContainsAny(line[:1], " \n})") && !strings.HasPrefix(line, "end") && !strings.HasPrefix(line, "else")
		if begins && code != "" {
			end()
		}
		if code == "" && strings.HasPrefix(line, "--") {
			comments += line
		} else {
			code += line
		}
	}
	end()
	return all
}

func statementOf(comments, code string) statement {
	s := statement{text: comments + code, words: words(code)}
	if rest, is := strings.CutPrefix(code, "local "); is {
		defined, _, _ := strings.Cut(strings.TrimPrefix(rest, "function "), "(")
		defined, _, _ = strings.Cut(defined, " =")
		s.names = strings.Split(defined, ", ")
	}
	return s
}

// words returns the names in a piece of code, each once.
func words(code string) (all []string) {
	for i := 0; i < len(code); {
		switch from := i; {
		case strings.HasPrefix(code[i:], "--"):
			i += strings.IndexByte(code[i:]+"\n", '\n')
		case code[i] == '\'':
			i += strings.IndexByte(code[i+1:]+"'", '\'') + 2
		case letter(code[i]):
			for i < len(code) && letter(code[i]) {
				i++
			}
			field := from > 0 && code[from-1] == '.' && (from < 2 || code[from-2] != '.')
			if word := code[from:i]; !field && !slices.Contains(all, word) {
				all = append(all, word)
			}
		default:
			i++
		}
	}
	return all
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c == '_' || c >= '0' && c <= '9' }
