"""What stands in the tables."""

from dendrax.paper import _published as published
from dendrax.paper._tables import all_tables, number, table1, table2, table3
from tests.paper import findings as made


def test_paper_beside_ours():
    found = made.as_published()
    rows = {row[0]: row[1:] for row in table1(found, "float64").rows}
    assert list(rows) == list(published.ROWS)
    assert rows["MLP"] == ("0", "0", "0", "0")
    assert rows["Transformer"] == ("7.29e+04", "7.29e+04", "0", "0")
    assert table1(found, "float32").rows == ()
    rows = {row[0]: row[1:] for row in table3(found, "float64").rows}
    assert rows["RNN"][:4] == ("0", "0", "6.05e+03", "3.00e+00")


def test_a_row_is_the_mean_of_its_networks():
    found = [made.divergence("original", value) for value in (0.0, 3.0)]
    assert table1(found, "float64").rows[0][2] == "1.50e+00"


def test_overflow_and_what_is_not_measured_yet():
    assert table1([made.divergence("original", None)], "float64").rows == (
        ("MLP", "0", "overflow", "-", "-"),
    )
    assert table3([made.divergence("original", 0.0)], "float64").rows == ()


def test_only_zero_is_shown_as_zero():
    assert number(0.0) == "0" and number(1e-300) == "1.00e-300"


def test_times():
    (row,) = table2([made.speed("RNN", zil=1.001, il=20.0)], "float32").rows
    assert row[:4] == ("RNN", "1.005", "1.001", "1.001 to 1.001")
    assert row[4:] == ("74", "20.0", "100", "1.00", "1.00", "20.0")


def test_training_and_playing():
    tables = {table.name: table for table in all_tables(made.everything())}
    paper = {"table1-float64", "table3-float64", "table2-float32", "networks"}
    assert set(tables) == {*paper, "training", "playing", "beyond"}
    assert tables["networks"].rows[0] == ("MLP", "tiny", "MLP(3)", "images", "2")
    assert tables["beyond"].rows[-1] == ("MLP", "steps", "IL", "100", "diverges")
    rules = {row[2]: row for row in tables["training"].rows}
    assert rules["Z-IL"][-2] == "2 of 2" and rules["IL"][-2] == ""
    assert rules["BP"][5] == "90.00 %"
    assert tables["playing"].rows[1][-1] == "6 of 6"
    several = all_tables([made.run("BP", ["a"], 0.8), made.run("BP", ["b"], 0.9, seed=1)])
    assert several[0].rows[0][4:6] == ("2", "85.00 ± 7.07 %")
