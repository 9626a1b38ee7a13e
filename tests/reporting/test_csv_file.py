import csv

from actor_learner.reporting import csv_file


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_missing_values_are_empty_cells(tmp_path):
    path = tmp_path / "run" / "metrics.csv"
    logger = csv_file.CsvLogger(path)
    logger.write({"environment_steps": 10, "return": 0.1})
    logger.write({"environment_steps": 20})
    assert read(path) == [["environment_steps", "return"], ["10", "0.1"], ["20", ""]]
    logger.close()


def test_a_new_key_widens_header_and_older_rows(tmp_path):
    path = tmp_path / "metrics.csv"
    logger = csv_file.CsvLogger(path)
    logger.write({"environment_steps": 10, "loss": 1 / 3})
    logger.write({"environment_steps": 20, "eval_return": 487.5, "eval_episodes": 20})
    logger.write({"environment_steps": 30, "loss": 0.25})
    logger.close()
    assert read(path) == [
        ["environment_steps", "loss", "eval_return", "eval_episodes"],
        ["10", repr(1 / 3), "", ""],
        ["20", "", "487.5", "20"],
        ["30", "0.25", "", ""],
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_a_resumed_file_keeps_its_columns_and_grows_them(tmp_path):
    path = tmp_path / "metrics.csv"
    for row in ({"b": 1, "a": 2}, {"a": 3, "b": 4}, {"c": 5}):
        logger = csv_file.CsvLogger(path)
        logger.write(row)
        logger.close()
    assert read(path) == [["b", "a", "c"], ["1", "2", ""], ["4", "3", ""], ["", "", "5"]]


def test_a_torn_line_is_cut_off_before_appending(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,b\n1,2\n3,")
    logger = csv_file.CsvLogger(path)
    logger.write({"a": 5, "b": 6})
    logger.close()
    assert read(path) == [["a", "b"], ["1", "2"], ["5", "6"]]


def test_a_torn_header_starts_the_file_anew(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,")
    logger = csv_file.CsvLogger(path)
    logger.write({"x": 1})
    logger.close()
    assert read(path) == [["x"], ["1"]]


def test_text_with_commas_quotes_and_newlines_stays_one_line(tmp_path):
    path = tmp_path / "metrics.csv"
    logger = csv_file.CsvLogger(path)
    logger.write({"note": 'he said "a, b"\nand left', "a": 1})
    logger.close()
    assert read(path) == [["note", "a"], ['he said "a, b" and left', "1"]]
    assert len(path.read_text().splitlines()) == 2


def test_truncating_drops_rows_beyond_the_checkpoint_and_keeps_the_header(tmp_path):
    path = tmp_path / "metrics.csv"
    logger = csv_file.CsvLogger(path)
    for step in (100, 200, 300):
        logger.write({"environment_steps": step, "loss": 0.5})
    logger.write({"environment_steps": 300, "eval_return": 9.0})
    logger.close()
    assert csv_file.truncate_after(path, 200) == 2
    assert read(path) == [
        ["environment_steps", "loss", "eval_return"],
        ["100", "0.5", ""],
        ["200", "0.5", ""],
    ]
    assert csv_file.truncate_after(tmp_path / "none.csv", 1) == 0
