package redisprobe

// NeededCommands are the names of the commands that a store needs of every Redis.
func NeededCommands() (names []string) {
	for _, command := range neededCommands {
		names = append(names, command.name())
	}
	return names
}
