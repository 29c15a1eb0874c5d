"""Reports: what a result looks like on paper, on a page and in other programs."""
