package names

// Nearest returns the name of a list that is nearly the same as another: one that is reached by
// adding, removing or changing the fewest characters, and at most that many; "" if there is none.
func Nearest(name string, of []string, most int) string {
	nearest, least := "", most+1
	for _, other := range of {
		if d := distance(name, other); d < least {
			nearest, least = other, d
		}
	}
	return nearest
}

// distance is how many characters have to be added, removed or changed between names (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
