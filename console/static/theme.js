// The chosen colours. It runs before the modules and before anything is drawn, so that a dark page
// does not flash white.
{
  let chosen = '';
  try {
    chosen = localStorage.getItem('coatcheck-theme') ?? '';
  } catch {
    // Storage may be closed to this page; then it follows the system.
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
