package names

// Nearest returns the name of a list that is nearly the same as another: the name that is reached
// by adding, removing or changing the fewest characters, or by exchanging two neighbours. That is
// at most every third character, so that a short name does not become another word. It returns ""
// if no name is as near.
func Nearest(name string, of []string) string {
	nearest, least := "", len(name)/3+1
	for _, other := range of {
		if d := distance(name, other); d < least {
			nearest, least = other, d
		}
	}
	return nearest
}

// distance is how many characters have to be added, removed, changed, or exchanged with their
// neighbour between names (Levenshtein, with the neighbours of Damerau).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			changed := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				changed++
			}
			rows[i][j] = min(changed, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
